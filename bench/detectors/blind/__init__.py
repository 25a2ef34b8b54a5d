"""Cases of authors who knew none of the rules: see __main__.py."""
