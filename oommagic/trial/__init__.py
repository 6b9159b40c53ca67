"""Something tried in a child process, under a limit: the kernel is never at risk."""
