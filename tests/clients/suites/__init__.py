"""The client suites: each module has NAME, CLIENT, prepare(context), list_tests(context), run_tests(context, names)."""
