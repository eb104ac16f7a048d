"""Django with Amazon's backend: migrations, models, queries, transactions, inspection."""

from __future__ import annotations

import datetime
import decimal
import threading
from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connection, connections, models, transaction

from pytest_dsql.targets.target import Target
from tests.orm.conftest import Address, jobs_afterwards

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def shop(address: Address, dsql_target: Target) -> Iterator[Any]:
    """The application's models, migrated."""
    database = {
        "ENGINE": "aurora_dsql_django",
        "HOST": address.host,
        "PORT": address.port,
        "USER": "admin",
        "NAME": "postgres",
        "OPTIONS": {
            "hostaddr": "127.0.0.1",
            "region": address.region,
            "sslmode": "verify-full",
            "sslrootcert": address.ca_file,
        },
    }
    if not settings.configured:
        settings.configure(
            DATABASES={"default": database},
            INSTALLED_APPS=["tests.orm.shop"],
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            USE_TZ=True,
        )
        django.setup()
    with jobs_afterwards(dsql_target):
        call_command("migrate", verbosity=0)
    connections.close_all()  # each session would hear once that the catalog has changed
    from tests.orm.shop import models as shop

    yield shop
    connections.close_all()


def _ada(shop: Any) -> Any:
    ada = shop.Customer.objects.create(name="Ada", email="ada@example.org")
    for total in ("10.50", "20"):
        ada.orders.create(
            total=decimal.Decimal(total), details={"gift": total == "20"}, placed=datetime.date(2026, 11, 30)
        )
    return ada


def test_objects_are_written_and_read(shop: Any) -> None:
    ada = _ada(shop)
    found = shop.Order.objects.select_related("customer").filter(customer__name="Ada").order_by("total")
    assert [(order.total, order.details, order.customer.email) for order in found] == [
        (decimal.Decimal("10.50"), {"gift": False}, ada.email),
        (decimal.Decimal("20.00"), {"gift": True}, ada.email),
    ]


def test_queries(shop: Any) -> None:
    _ada(shop)
    totals = shop.Customer.objects.annotate(spent=models.Sum("orders__total")).values_list("name", "spent")
    assert list(totals) == [("Ada", decimal.Decimal("30.50"))]
    assert shop.Order.objects.exclude(total=20).count() == 1
    assert shop.Order.objects.filter(placed__year=2026, total__lt=15).exists()
    assert shop.Customer.objects.filter(name__icontains="AD").in_bulk(field_name="name").keys() == {"Ada"}


def test_changes(shop: Any) -> None:
    ada = _ada(shop)
    assert shop.Order.objects.filter(total=20).update(total=models.F("total") + 1) == 1
    shop.Customer.objects.update_or_create(name="Ada", defaults={"email": None})
    shop.Customer.objects.bulk_create([shop.Customer(name="Grace"), shop.Customer(name="Ada")], ignore_conflicts=True)
    assert shop.Customer.objects.count() == 2
    assert ada.delete()[0] == 3
    assert not shop.Order.objects.exists()


def test_constraints_hold(shop: Any) -> None:
    ada = _ada(shop)
    with pytest.raises(IntegrityError, match="shop_order_total"):
        ada.orders.create(total=-1)
    with pytest.raises(IntegrityError, match="name"):
        shop.Customer.objects.create(name="Ada")


def test_transactions(shop: Any) -> None:
    with transaction.atomic():
        _ada(shop)
        transaction.set_rollback(True)
    assert not shop.Customer.objects.exists()
    with transaction.atomic():
        _ada(shop)
        assert shop.Customer.objects.select_for_update().get(name="Ada").name == "Ada"
    assert shop.Order.objects.count() == 2


def test_retried_transactions_add_up(shop: Any) -> None:
    _ada(shop)

    def pay() -> None:
        try:
            for _ in range(50):
                try:
                    with transaction.atomic():
                        order = shop.Order.objects.get(total__gte=20)
                        order.total += 1
                        order.save()
                except OperationalError as error:
                    if getattr(error.__cause__, "sqlstate", None) != "40001":
                        raise
                    continue
                return
        finally:
            connection.close()

    threads = [threading.Thread(target=pay) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shop.Order.objects.get(total__gte=20).total == decimal.Decimal(24)


def test_inspection(shop: Any) -> None:
    with connection.cursor() as cursor:
        introspection = connection.introspection
        assert {"shop_customer", "shop_order"} <= {one.name for one in introspection.get_table_list(cursor)}
        columns = {one.name: one for one in introspection.get_table_description(cursor, "shop_order")}
        assert {"id", "total", "details", "customer_id", "placed"} == set(columns)
        constraints = introspection.get_constraints(cursor, "shop_order")
    assert constraints["shop_order_total"]["check"]
    assert [one["foreign_key"] for one in constraints.values() if one["foreign_key"]] == [("shop_customer", "id")]
    assert [one["columns"] for one in constraints.values() if one["primary_key"]] == [["id"]]
    assert ["placed"] in [one["columns"] for one in constraints.values() if one["index"]]


def test_nothing_is_left_to_migrate(shop: Any) -> None:
    call_command("makemigrations", "shop", check=True, dry_run=True, verbosity=0)


def test_migrations_can_be_undone(shop: Any) -> None:
    call_command("migrate", "shop", "zero", verbosity=0)
    assert "shop_order" not in connection.introspection.table_names()
