"""The life of a call: routing, dispatch, the pipe between upstream and client, the record. Async, without sockets.

Call (call.py)   one client request: attempts, head commit, heartbeats, timeouts, settling exactly once
Attempt          one upstream exchange: turns transport callbacks into feeds of a pipe
pipes            upstream bytes → client bytes: relay, transcode, fold
Router           model name and policy → endpoints in order
"""
