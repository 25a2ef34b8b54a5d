"""The arithmetic of a step: rewards, advantages, group filters, curriculum weights. Trainers, replays, `verify` and the
verl plug-ins compute by it.

Arrays in, arrays out. (N,): a value for every rollout; `group` (N,): the number of its group, from 0; (G,): a value for
every group. NaN: no value (a component that does not apply, a rollout that was not graded). Nothing here samples or
stores; the one state, `FilterState`, is its caller's.
"""
