"""What runs on a rented-out machine: it reads, signs and sends, and decides no bill."""
