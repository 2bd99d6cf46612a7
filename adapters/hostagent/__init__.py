"""What runs on a rented-out machine: reads, signs, spools and sends; it never decides what is billed."""
