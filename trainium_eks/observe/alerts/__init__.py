"""The alerts' pages, and the alerts that fire."""
