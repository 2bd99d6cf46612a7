"""HTTP: a frontend that turns requests into commands and questions, and answers into JSON."""
