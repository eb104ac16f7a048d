"""What the shop sells, and to whom."""

from __future__ import annotations

from django.db import models


class Customer(models.Model):
    """Somebody who buys."""

    name = models.CharField(max_length=80, unique=True)
    email = models.EmailField(null=True)
    joined = models.DateTimeField(auto_now_add=True)


class Order(models.Model):
    """What somebody bought."""

    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="orders")
    total = models.DecimalField(max_digits=10, decimal_places=2)
    details = models.JSONField(default=dict)
    placed = models.DateField(null=True, db_index=True)

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(total__gte=0), name="shop_order_total"),)
