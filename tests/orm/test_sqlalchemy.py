"""SQLAlchemy with Amazon's dialect: schema, unit of work, queries, reflection, retries."""

from __future__ import annotations

import decimal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from aurora_dsql_sqlalchemy import create_dsql_engine
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, joinedload, mapped_column, relationship

from pytest_dsql.targets.target import Target
from tests.orm.conftest import Address, jobs_afterwards


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "orm_author"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    name: Mapped[str] = mapped_column(sa.String(100), unique=True)
    about: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
    books: Mapped[list[Book]] = relationship(back_populates="author", order_by="Book.id")


class Book(Base):
    __tablename__ = "orm_book"
    __table_args__ = (
        sa.CheckConstraint("price >= 0", name="orm_book_price"),
        sa.Index("orm_book_title", "title", auroradsql_include=["price"]),
    )
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(cache=1), primary_key=True)
    title: Mapped[str]
    price: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(10, 2), server_default="0")
    author_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("orm_author.id", ondelete="CASCADE"))
    added: Mapped[Any] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    author: Mapped[Author] = relationship(back_populates="books")


@pytest.fixture
def engine(address: Address, dsql_target: Target) -> Iterator[sa.Engine]:
    engine = create_dsql_engine(
        address.host, "admin", sslrootcert=address.ca_file, connect_args=address.libpq, pool_size=4
    )
    with jobs_afterwards(dsql_target):
        # One DDL statement per transaction.
        Base.metadata.create_all(engine.execution_options(isolation_level="AUTOCOMMIT"))
    engine.dispose()  # each session would hear once that the catalog has changed
    yield engine
    engine.dispose()


def _retried(engine: sa.Engine, work: Callable[[Session], object]) -> None:
    for _ in range(50):
        try:
            with Session(engine) as session, session.begin():
                work(session)
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != "40001":
                raise
            continue
        return
    raise AssertionError("never succeeded")


@pytest.fixture
def books(engine: sa.Engine) -> sa.Engine:
    def write(session: Session) -> None:
        for name, titles in (("Ada", ["Notes", "Engines"]), ("Grace", ["Compilers"])):
            session.add(
                Author(name=name, about={"n": 1}, books=[Book(title=one, price=decimal.Decimal(9)) for one in titles])
            )

    _retried(engine, write)
    return engine


def test_units_of_work_are_written_and_read(books: sa.Engine) -> None:
    with Session(books) as session:
        authors = session.scalars(sa.select(Author).options(joinedload(Author.books)).order_by(Author.name)).unique()
        found = [(author.name, author.about, [book.title for book in author.books]) for author in authors]
    assert found == [("Ada", {"n": 1}, ["Notes", "Engines"]), ("Grace", {"n": 1}, ["Compilers"])]


def test_joins_and_aggregates(books: sa.Engine) -> None:
    query = (
        sa.select(Author.name, sa.func.count(Book.id), sa.func.sum(Book.price))
        .join(Book)
        .group_by(Author.name)
        .having(sa.func.count(Book.id) > 1)
    )
    with books.connect() as connection:
        assert [tuple(row) for row in connection.execute(query)] == [("Ada", 2, decimal.Decimal(18))]


def test_changes_and_their_returning(books: sa.Engine) -> None:
    with books.begin() as connection:
        updated = connection.execute(sa.update(Book).where(Book.title == "Notes").values(price=5).returning(Book.price))
        assert updated.scalar_one() == decimal.Decimal(5)
        deleted = connection.execute(sa.delete(Author).where(Author.name == "Ada"))
        assert deleted.rowcount == 1
        assert connection.scalar(sa.select(sa.func.count()).select_from(Book)) == 1


def test_upserts(books: sa.Engine) -> None:
    statement = insert(Author).values(id=uuid.uuid4(), name="Ada", about={"n": 2})
    statement = statement.on_conflict_do_update(index_elements=["name"], set_={"about": statement.excluded.about})
    with books.begin() as connection:
        connection.execute(statement)
        query = sa.select(Author.about["n"].as_integer()).where(Author.name == "Ada")
        assert connection.scalar(query) == 2


def test_violations_are_integrity_errors(books: sa.Engine) -> None:
    with Session(books) as session:
        session.add(Author(name="Ada"))
        with pytest.raises(sa.exc.IntegrityError, match="orm_author_name_key"):
            session.flush()


def test_inspection(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert {"orm_author", "orm_book"} <= set(inspector.get_table_names())
    columns = {column["name"]: column for column in inspector.get_columns("orm_book")}
    assert isinstance(columns["id"]["type"], sa.BigInteger)
    assert columns["id"]["identity"]["cache"] == 1
    assert isinstance(columns["price"]["type"], sa.Numeric)
    assert not columns["title"]["nullable"]
    assert inspector.get_pk_constraint("orm_book")["constrained_columns"] == ["id"]
    (foreign_key,) = inspector.get_foreign_keys("orm_book")
    assert (foreign_key["referred_table"], foreign_key["options"]) == ("orm_author", {"ondelete": "CASCADE"})
    assert [one["name"] for one in inspector.get_check_constraints("orm_book")] == ["orm_book_price"]
    assert [one["name"] for one in inspector.get_indexes("orm_book")] == ["orm_book_title"]
    assert [one["column_names"] for one in inspector.get_unique_constraints("orm_author")] == [["name"]]


def test_reflected_tables_can_be_queried(books: sa.Engine) -> None:
    metadata = sa.MetaData()
    metadata.reflect(books, only=["orm_author", "orm_book"])
    author, book = metadata.tables["orm_author"], metadata.tables["orm_book"]
    query = sa.select(book.c.title).join(author).where(author.c.name == "Grace")
    with books.connect() as connection:
        assert connection.scalars(query).all() == ["Compilers"]


def test_retried_transactions_add_up(books: sa.Engine) -> None:
    def raise_price(session: Session) -> None:
        book = session.scalars(sa.select(Book).where(Book.title == "Compilers")).one()
        book.price += 1

    threads = [threading.Thread(target=_retried, args=(books, raise_price)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with books.connect() as connection:
        assert connection.scalar(sa.select(Book.price).where(Book.title == "Compilers")) == decimal.Decimal(13)


def test_everything_can_be_dropped(engine: sa.Engine) -> None:
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    Base.metadata.drop_all(autocommit)
    assert not {"orm_author", "orm_book"} & set(sa.inspect(engine).get_table_names())
