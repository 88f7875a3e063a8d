"""Local images: virtual environments in which pods run."""
