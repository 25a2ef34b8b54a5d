"""Is a gain named sharpening where it is, and only there? Scaled policies against real trainings."""
