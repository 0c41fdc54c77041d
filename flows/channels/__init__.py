"""One file a service behind one small contract; nothing here decides what is said or to whom."""
