"""Classes of Protobuf, as protoc makes them of these files, which import one another:

common/customer.proto:  package shop;  message Customer { string name = 1; }
shop/order.proto:       package shop;  imports common/customer.proto and google/protobuf/timestamp.proto
                        message First { string symbol = 1; }
                        message Order { int32 quantity = 1;  Customer customer = 2;  Timestamp placed = 3;
                                        message Line { string item = 1; } }
"""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

__all__ = ["CLASSES"]

TEXT = 9
INTEGER = 5
MESSAGE = 11


def message(
    name: str, *fields: tuple[str, int, str], nested: tuple[DescriptorProto, ...] = ()
) -> DescriptorProto:
    made = DescriptorProto(name=name, nested_type=nested)
    for number, (field, kind, type_name) in enumerate(fields, 1):
        made.field.append(
            FieldDescriptorProto(name=field, number=number, label=1, type=kind, type_name=type_name or None)  # type: ignore[arg-type]
        )
    return made


def classes() -> dict[str, Any]:
    """The classes by their full names, of a pool of their own."""
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    common = FileDescriptorProto(name="common/customer.proto", package="shop", syntax="proto3")
    common.message_type.append(message("Customer", ("name", TEXT, "")))
    pool.AddSerializedFile(common.SerializeToString())
    order = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend([common.name, "google/protobuf/timestamp.proto"])
    order.message_type.append(message("First", ("symbol", TEXT, "")))
    fields = (
        ("quantity", INTEGER, ""),
        ("customer", MESSAGE, ".shop.Customer"),
        ("placed", MESSAGE, ".google.protobuf.Timestamp"),
    )
    order.message_type.append(message("Order", *fields, nested=(message("Line", ("item", TEXT, "")),)))
    pool.AddSerializedFile(order.SerializeToString())
    names = ("shop.Customer", "shop.First", "shop.Order", "shop.Order.Line")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


CLASSES = classes()
