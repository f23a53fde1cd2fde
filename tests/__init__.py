"""The tests, and the import contract type that import-linter loads from here."""
