"""The command line: the same services and questions as the API, for people at a terminal."""
