"""The parts of a plan. Decides from inventories and a Resolution; touches no machine.

request     what was asked, and which Python the result has
resolution  what the resolver and the index said, as data
choice      one dist of the result: from where, and why
closure     which dists are chosen, mended until what can be loaded is loaded
result      the environment as it would be
limits      what a plan must not do: downgrade, change flavour, use a broken source, overfill a disk
render      a plan for people: table and "why is this here" tree
"""
