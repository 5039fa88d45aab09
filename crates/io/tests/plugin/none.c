int nothing_of_use(void) { return 1; }
