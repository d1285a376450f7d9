"""The errors of the package, and their texts."""
