"""One file a format, named as the format is: its `IMPORTER` reads it. A further file is a further format."""
