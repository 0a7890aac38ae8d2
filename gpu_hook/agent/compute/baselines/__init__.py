"""What other systems do about compute shares, behind our interface: to measure ourselves against, never for users."""
