"""Layout of what kernels know of an MPI library, an int64 array, and of the table of messages."""

LOCK = 0  # 1 while a thread calls the library; a line of its own
SEND, RECEIVE, TEST = 8, 9, 10  # addresses of its functions
COMMUNICATOR, BYTE = 11, 12  # its handles
REQUEST_BYTES, STATUSES, FLAG = 13, 14, 15  # size of a request; scratch for its answers: an address, and a cell
CELLS = 16
RECEIVES, OFFSET, COUNT, PEER, TAG = range(5)  # columns of a message (layout.Message)
