"""Places orders with the desk: python place.py [COUNT]."""

import sys

import millstream as ms
from desk import NewOrder, Orders


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    orders = ms.publisher(Orders, "data/orders", sync="10ms")  # type: ignore[type-abstract]
    orders.set_limit("ACCT-1", 100_000)
    for number in range(count):
        orders.new_order(NewOrder(f"A-{number}", "ACCT-1", "VOD.L", "1", 1, 72.5))


if __name__ == "__main__":
    main()
