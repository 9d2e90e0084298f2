"""Does an endpoint keep its protocol? Asks it small questions over HTTP and judges the bytes of its answers.

    asking: requests out, captured bytes in → framing: frames with their times → grammar: a reading, with broken rules
    session: asks each question once → checks: one function and one row of the table each → report

Nothing here uses Strom's codecs: whoever judges must not share the mistakes of the judged, and Strom is one of them.
"""
