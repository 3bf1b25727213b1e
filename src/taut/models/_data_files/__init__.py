"""Files of data that may be anybody's: texts, tables, images, sound, tensors."""
