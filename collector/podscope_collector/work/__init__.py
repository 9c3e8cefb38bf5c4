"""Work that is a row in the database before it is a message."""
