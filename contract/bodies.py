"""Bodies of requests and answers, and limits of what is in them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, model_validator

MOST = (1 << 53) - 1  # whole numbers up to here are the same in every JSON library
MOST_ERRORS = 100  # in one answer
MOST_ID = (1 << 31) - 1  # of ids and counts in the database


def _whole(value: object) -> object:
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Model(BaseModel):
    """A body of an answer. Unknown fields are ignored, since a newer server may send more.

    A field that is added later has a default, since an older server does not send it.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)


OPEN: ConfigDict = {"extra": "ignore", "strict": False}  # of an answer that inherits the fields of a request


class Request(Model):
    """A body of a request: unknown fields are refused, and values must have the schema's types."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, values: object) -> object:
        """JSON does not distinguish integers: 4.0 is one; 4.5, true and "4" are not."""
        return {key: _whole(value) for key, value in values.items()} if isinstance(values, dict) else values
