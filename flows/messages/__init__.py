"""What people are told: neutral blocks first, one dialect a file last. Pure: text in, text out."""
