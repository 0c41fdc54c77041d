"""Protobuf messages of the few fields that are read, made at run time: no generated code, no tracker installed.

Only numbers and types of the fields matter on the wire; what is not declared is passed over by the parser in C.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Field = tuple[int, str | list[str]]  # number and type, in a list where the field is repeated


def messages(package: str, declared: Mapping[str, Mapping[str, Field]]) -> dict[str, Any]:
    """The classes, by name. A type is that of a .proto file (`double`, `bytes`, ...) or one of `declared`."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in declared.items():
        message = file.message_type.add(name=name)
        for field, (number, said) in fields.items():
            each = said[0] if isinstance(said, list) else said
            label = kind.LABEL_REPEATED if isinstance(said, list) else kind.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if each in declared:
                added.type, added.type_name = kind.TYPE_MESSAGE, f".{package}.{each}"
            else:
                added.type = kind.Type.Value(f"TYPE_{each.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in declared}
