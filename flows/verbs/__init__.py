"""The verbs of the command line, a file each: parse, call a stage, print."""
