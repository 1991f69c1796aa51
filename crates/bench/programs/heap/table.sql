create table t(a integer primary key, b text, c real);
with recursive numbers(i) as (select 1 union all select i + 1 from numbers where i < 1000000)
insert into t select i, printf('name-%d-%d', i * 2654435761 % 1000003, i), i * 0.5 from numbers;
create index by_name on t(b);
create index by_number on t(c desc);
select count(*), sum(length(b)) from t where b like 'name-1%';
