"""Where phones and pagers answer: a small HTTP endpoint that writes down who has an incident in hand."""
