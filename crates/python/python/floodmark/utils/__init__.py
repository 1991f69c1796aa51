"""Modules under the names that cuDF has for them."""
