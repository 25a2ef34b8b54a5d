"""One run, from the base policy to the certificate: steps are functions of a context,
and events alone change its state."""
