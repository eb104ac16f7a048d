"""What was added later: columns, an index, a constraint; and what went."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """As DSQL lets tables be altered."""

    atomic = False
    dependencies = (("shop", "0001_initial"),)
    operations = (
        migrations.AddField("customer", "email", models.EmailField(max_length=254, null=True)),
        migrations.AddField("order", "placed", models.DateField(null=True, db_index=True)),
        migrations.RemoveField("order", "nickname"),
        migrations.AddConstraint(
            "order", models.CheckConstraint(condition=models.Q(total__gte=0), name="shop_order_total")
        ),
    )
