"""Customers: records some payments in the journal `payments`, whether or not the bank runs. python pay.py"""

import millstream as ms
from bank import Payments


def main() -> None:
    payments = ms.publisher(Payments, "payments")  # type: ignore[type-abstract]
    payments.deposit("alice", 100_00)
    payments.deposit("bob", 50_00)
    payments.transfer("alice", "bob", 30_00)
    payments.transfer("mallory", "alice", -70_00)


if __name__ == "__main__":
    main()
