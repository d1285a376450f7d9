CREATE TABLE orders (id int PRIMARY KEY, customer text NOT NULL, cents int NOT NULL);
CREATE TABLE orders_copy (id int PRIMARY KEY, customer text NOT NULL, cents int NOT NULL);
