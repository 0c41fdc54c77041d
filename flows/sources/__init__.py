"""One file a tracker or file format behind one small contract; catalogue.py tells by content which one to take."""
