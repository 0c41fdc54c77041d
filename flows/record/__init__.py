"""The operating record: charts, pages, artifacts. Rows and arrays in, pictures and text out."""
