"""From the deltas of one stream to one message: stamping, the contract, the assembler, and incremental arguments."""
