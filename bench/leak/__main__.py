"""python -m bench.leak"""

from bench.leak.run import main

main()
