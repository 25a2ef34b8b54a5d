"""Code that runs inside the sandbox, sent in as text: it imports the standard library and `sandbox.values` only."""
