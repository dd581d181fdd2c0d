"""Layout of the int64 arrays of messages: what kernels know of an MPI library, the table of messages, their times."""

LOCK = 0  # 1 while a thread calls the library; a line of its own
SEND, RECEIVE, TEST = 8, 9, 10  # addresses of its functions
COMMUNICATOR, BYTE = 11, 12  # its handles
REQUEST_BYTES, STATUSES, FLAG = 13, 14, 15  # size of a request; scratch for its answers: an address, and a cell
CELLS = 16
RECEIVES, OFFSET, COUNT, PEER, TAG = range(5)  # columns of a message (layout.Message)
# Columns of `traffic`, which has a row for each kind of exchange in each step, and one for all kinds together: ticks in
# calls of the library; a span (below) while exchanges are in flight, and one while tasks hold threads for them; ticks
# for which they hold them, summed over threads.
CALLS, IN_FLIGHT, HELD, HOLDING = 0, 1, 4, 7
ONGOING, SINCE, ELAPSED = range(3)  # of a span: how many are going on; since when, if any; ticks while any was
TRAFFIC_CELLS = 8  # a cache line
