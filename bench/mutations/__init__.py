"""Do the tests notice what a careless refactor breaks? Sixty faults, made by hand, one at a time in a copy of src."""
