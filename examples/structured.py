"""An answer as an object: partial values while it streams, validated at the end."""

from dataclasses import dataclass

from models import model

import strom


@dataclass
class Person:
    name: str
    age: int


for event in model().stream("Invent a person.", into=Person, repair=True):
    match event:
        case strom.StreamPartial(value=value):
            print("so far:", value)
        case strom.StreamCompleted(value=person):
            print("person:", person)
        case strom.StreamError(detail=detail):
            print("none:", detail)
