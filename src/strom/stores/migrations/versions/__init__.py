"""One module per change, in order. What is released is never edited: it describes what stands in files out there."""
