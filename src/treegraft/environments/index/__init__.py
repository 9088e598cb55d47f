"""What the user's package index says. The only part of planning that starts a process or reaches a network.

uv       runs uv with the user's own index options
stubs    wheels that hold metadata only, so that uv can choose what is installed on either end
resolve  which versions fit together on the target
wheel    the files of an index wheel with their hashes, cached
origin   an installed dist against the index wheel of its version
patch    a folder of patched modules against the index wheel
"""
