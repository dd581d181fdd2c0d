"""Bodies of requests and answers, and the largest numbers in them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, model_validator

MOST = (1 << 53) - 1  # whole numbers up to here are the same in every JSON library
MOST_ID = (1 << 31) - 1  # of ids and counts in the database


def _whole(value: object) -> object:
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Model(BaseModel):
    """A body that the server answers: fields that the reader does not know are left aside, as a newer server has more.

    A field that is added later has a default: an older server does not send it.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)


OPEN: ConfigDict = {"extra": "ignore", "strict": False}  # of an answer that inherits the fields of a request


class Request(Model):
    """A body that is sent to the server: unknown fields are refused, values are of the type that the schema says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, values: object) -> object:
        """JSON has no integers of its own: 4.0 is one; but 4.5, true and "4" are none."""
        return {key: _whole(value) for key, value in values.items()} if isinstance(values, dict) else values
